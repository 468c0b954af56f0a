BEGIN TRANSACTION;
CREATE TABLE agents (
	id INTEGER NOT NULL, 
	phase_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	brain TEXT, 
	muscle TEXT, 
	objective TEXT, 
	CONSTRAINT pk_agents PRIMARY KEY (id), 
	CONSTRAINT fk_agents_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id), 
	CONSTRAINT uq_agents_phase_id_name UNIQUE (phase_id, name)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0006');
CREATE TABLE bodies (
	id INTEGER NOT NULL, 
	phase_id INTEGER NOT NULL, 
	agent_id INTEGER NOT NULL, 
	body_group INTEGER NOT NULL, 
	name TEXT, 
	first INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	incarnations TEXT, 
	environment TEXT, 
	muscle TEXT, 
	objective TEXT, 
	proposed BOOLEAN NOT NULL, 
	CONSTRAINT pk_bodies PRIMARY KEY (id), 
	CONSTRAINT fk_bodies_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id), 
	CONSTRAINT fk_bodies_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id), 
	CONSTRAINT uq_bodies_agent_id_body_group UNIQUE (agent_id, body_group)
);
CREATE TABLE brains (
	id INTEGER NOT NULL, 
	instance_id INTEGER NOT NULL, 
	phase INTEGER NOT NULL, 
	agent TEXT NOT NULL, 
	snapshot TEXT NOT NULL, 
	tag TEXT NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	time DATETIME NOT NULL, 
	dump BLOB NOT NULL, 
	CONSTRAINT pk_brains PRIMARY KEY (id), 
	CONSTRAINT fk_brains_instance_id FOREIGN KEY(instance_id) REFERENCES instances (id), 
	CONSTRAINT uq_brains_instance_id_phase_agent_snapshot_tag UNIQUE (instance_id, phase, agent, snapshot, tag)
);
CREATE TABLE channels (
	id INTEGER NOT NULL, 
	phase_id INTEGER NOT NULL, 
	environment_id INTEGER, 
	agent_id INTEGER, 
	body_group INTEGER DEFAULT '0' NOT NULL, 
	kind TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	uid TEXT NOT NULL, 
	space TEXT, 
	size INTEGER NOT NULL, 
	CONSTRAINT pk_channels PRIMARY KEY (id), 
	CONSTRAINT fk_channels_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id), 
	CONSTRAINT fk_channels_environment_id FOREIGN KEY(environment_id) REFERENCES environments (id), 
	CONSTRAINT fk_channels_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id)
);
CREATE TABLE descriptions (
	id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	content TEXT NOT NULL, 
	CONSTRAINT pk_descriptions PRIMARY KEY (id), 
	CONSTRAINT uq_descriptions_hash UNIQUE (hash)
);
CREATE TABLE environments (
	id INTEGER NOT NULL, 
	phase_id INTEGER NOT NULL, 
	uid TEXT NOT NULL, 
	name TEXT NOT NULL, 
	params TEXT, 
	world_model TEXT, 
	start TEXT, 
	step_size BIGINT NOT NULL, 
	incarnations INTEGER DEFAULT '1' NOT NULL, 
	topology_id INTEGER, 
	CONSTRAINT pk_environments PRIMARY KEY (id), 
	CONSTRAINT fk_environments_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id), 
	CONSTRAINT fk_environments_topology_id FOREIGN KEY(topology_id) REFERENCES descriptions (id), 
	CONSTRAINT uq_environments_phase_id_uid UNIQUE (phase_id, uid)
);
CREATE TABLE episodes (
	phase_id INTEGER NOT NULL, 
	worker INTEGER NOT NULL, 
	episode INTEGER NOT NULL, 
	evaluation BOOLEAN DEFAULT 0 NOT NULL, 
	steps BIGINT NOT NULL, 
	ticks BIGINT NOT NULL, 
	ended_by TEXT NOT NULL, 
	flow TEXT NOT NULL, 
	duration FLOAT NOT NULL, 
	ended DATETIME NOT NULL, 
	CONSTRAINT pk_episodes PRIMARY KEY (phase_id, worker, episode, evaluation), 
	CONSTRAINT fk_episodes_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id)
);
CREATE TABLE errors (
	id INTEGER NOT NULL, 
	instance_id INTEGER NOT NULL, 
	phase_id INTEGER, 
	kind TEXT NOT NULL, 
	message TEXT NOT NULL, 
	traceback TEXT NOT NULL, 
	time DATETIME NOT NULL, 
	CONSTRAINT pk_errors PRIMARY KEY (id), 
	CONSTRAINT fk_errors_instance_id FOREIGN KEY(instance_id) REFERENCES instances (id), 
	CONSTRAINT fk_errors_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id)
);
CREATE TABLE experiments (
	id INTEGER NOT NULL, 
	uid TEXT NOT NULL, 
	CONSTRAINT pk_experiments PRIMARY KEY (id), 
	CONSTRAINT uq_experiments_uid UNIQUE (uid)
);
CREATE TABLE instances (
	id INTEGER NOT NULL, 
	uid TEXT NOT NULL, 
	run_document_id INTEGER NOT NULL, 
	experiment_id INTEGER, 
	seed VARCHAR NOT NULL, 
	version TEXT NOT NULL, 
	status TEXT NOT NULL, 
	started DATETIME NOT NULL, 
	ended DATETIME, 
	host TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	pid_started FLOAT NOT NULL, 
	packages TEXT NOT NULL, 
	CONSTRAINT pk_instances PRIMARY KEY (id), 
	CONSTRAINT fk_instances_experiment_id FOREIGN KEY(experiment_id) REFERENCES experiments (id), 
	CONSTRAINT fk_instances_run_document_id FOREIGN KEY(run_document_id) REFERENCES run_documents (id), 
	CONSTRAINT uq_instances_uid UNIQUE (uid)
);
CREATE TABLE outcomes (
	phase_id INTEGER NOT NULL, 
	worker INTEGER NOT NULL, 
	episode INTEGER NOT NULL, 
	evaluation BOOLEAN DEFAULT 0 NOT NULL, 
	agent_id INTEGER NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	name TEXT NOT NULL, 
	sum FLOAT, 
	mean FLOAT, 
	min FLOAT, 
	max FLOAT, 
	CONSTRAINT pk_outcomes PRIMARY KEY (phase_id, worker, episode, evaluation, agent_id, kind, name), 
	CONSTRAINT fk_outcomes_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id), 
	CONSTRAINT fk_outcomes_phase_id_worker_episode_evaluation FOREIGN KEY(phase_id, worker, episode, evaluation) REFERENCES episodes (phase_id, worker, episode, evaluation)
);
CREATE TABLE phases (
	id INTEGER NOT NULL, 
	instance_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	mode TEXT NOT NULL, 
	workers INTEGER NOT NULL, 
	episodes INTEGER, 
	controller TEXT NOT NULL, 
	started DATETIME NOT NULL, 
	ended DATETIME, 
	reason TEXT, 
	world_id INTEGER, 
	CONSTRAINT pk_phases PRIMARY KEY (id), 
	CONSTRAINT fk_phases_instance_id FOREIGN KEY(instance_id) REFERENCES instances (id), 
	CONSTRAINT fk_phases_world_id FOREIGN KEY(world_id) REFERENCES descriptions (id), 
	CONSTRAINT uq_phases_instance_id_number UNIQUE (instance_id, number)
);
CREATE TABLE run_documents (
	id INTEGER NOT NULL, 
	hash TEXT NOT NULL, 
	uid TEXT NOT NULL, 
	document TEXT NOT NULL, 
	text TEXT NOT NULL, 
	content TEXT, 
	CONSTRAINT pk_run_documents PRIMARY KEY (id), 
	CONSTRAINT uq_run_documents_hash UNIQUE (hash)
);
CREATE TABLE streams (
	id INTEGER NOT NULL, 
	phase_id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT NOT NULL, 
	body_group INTEGER DEFAULT '0' NOT NULL, 
	evaluation BOOLEAN DEFAULT 0 NOT NULL, 
	folder TEXT NOT NULL, 
	rows BIGINT, 
	parts INTEGER, 
	digest TEXT, 
	CONSTRAINT pk_streams PRIMARY KEY (id), 
	CONSTRAINT fk_streams_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id), 
	CONSTRAINT uq_streams_phase_id_kind_name_body_group_evaluation UNIQUE (phase_id, kind, name, body_group, evaluation)
);
CREATE TABLE warnings (
	id INTEGER NOT NULL, 
	instance_id INTEGER NOT NULL, 
	text TEXT NOT NULL, 
	time DATETIME NOT NULL, 
	CONSTRAINT pk_warnings PRIMARY KEY (id), 
	CONSTRAINT fk_warnings_instance_id FOREIGN KEY(instance_id) REFERENCES instances (id)
);
CREATE INDEX ix_run_documents_content ON run_documents (content);
CREATE INDEX ix_run_documents_uid ON run_documents (uid);
CREATE INDEX ix_instances_experiment_id ON instances (experiment_id);
CREATE INDEX ix_instances_run_document_id ON instances (run_document_id);
CREATE INDEX ix_phases_world_id ON phases (world_id);
CREATE INDEX ix_warnings_instance_id ON warnings (instance_id);
CREATE INDEX ix_environments_topology_id ON environments (topology_id);
CREATE INDEX ix_errors_instance_id ON errors (instance_id);
CREATE INDEX ix_bodies_phase_id ON bodies (phase_id);
CREATE INDEX ix_channels_phase_id ON channels (phase_id);
COMMIT;
