BEGIN TRANSACTION;
CREATE TABLE agents (
	id INTEGER NOT NULL, 
	phase_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	brain TEXT, 
	muscle TEXT, 
	objective TEXT, 
	CONSTRAINT pk_agents PRIMARY KEY (id), 
	CONSTRAINT uq_agents_phase_id_name UNIQUE (phase_id, name), 
	CONSTRAINT fk_agents_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id)
);
INSERT INTO "agents" VALUES(1,1,'a','DummyBrain','DummyMuscle','DummyObjective');
INSERT INTO "agents" VALUES(2,1,'b','DummyBrain','DummyMuscle','DummyObjective');
INSERT INTO "agents" VALUES(3,2,'a','DummyBrain','DummyMuscle','DummyObjective');
INSERT INTO "agents" VALUES(4,2,'b','DummyBrain','DummyMuscle','DummyObjective');
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
INSERT INTO "alembic_version" VALUES('0005');
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
	CONSTRAINT uq_bodies_agent_id_body_group UNIQUE (agent_id, body_group), 
	CONSTRAINT fk_bodies_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id), 
	CONSTRAINT fk_bodies_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id)
);
INSERT INTO "bodies" VALUES(1,1,1,0,NULL,0,1,0,NULL,'myenv','DummyMuscle','DummyObjective',0);
INSERT INTO "bodies" VALUES(2,1,2,0,NULL,0,1,0,NULL,'myenv','DummyMuscle','DummyObjective',0);
INSERT INTO "bodies" VALUES(3,2,3,0,NULL,0,1,0,NULL,'myenv','DummyMuscle','DummyObjective',0);
INSERT INTO "bodies" VALUES(4,2,4,0,NULL,0,1,0,NULL,'myenv','DummyMuscle','DummyObjective',0);
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
	CONSTRAINT uq_brains_instance_id_phase_agent_snapshot_tag UNIQUE (instance_id, phase, agent, snapshot, tag), 
	CONSTRAINT fk_brains_instance_id FOREIGN KEY(instance_id) REFERENCES instances (id)
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
	CONSTRAINT fk_channels_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id), 
	CONSTRAINT fk_channels_environment_id FOREIGN KEY(environment_id) REFERENCES environments (id), 
	CONSTRAINT fk_channels_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id)
);
INSERT INTO "channels" VALUES(1,1,1,NULL,0,'sensor',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(2,1,1,NULL,0,'sensor',1,'myenv.1','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(3,1,1,NULL,0,'actuator',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(4,1,1,NULL,0,'reward',0,'count','Box(low=-inf, high=inf, shape=(), dtype=float64)',1);
INSERT INTO "channels" VALUES(5,1,NULL,1,0,'sensor',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(6,1,NULL,1,0,'sensor',1,'myenv.1','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(7,1,NULL,1,0,'actuator',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(8,1,NULL,1,0,'reward',0,'count',NULL,1);
INSERT INTO "channels" VALUES(9,1,NULL,2,0,'sensor',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(10,1,NULL,2,0,'sensor',1,'myenv.1','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(11,1,NULL,2,0,'actuator',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(12,1,NULL,2,0,'reward',0,'count',NULL,1);
INSERT INTO "channels" VALUES(13,2,2,NULL,0,'sensor',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(14,2,2,NULL,0,'sensor',1,'myenv.1','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(15,2,2,NULL,0,'actuator',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(16,2,2,NULL,0,'reward',0,'count','Box(low=-inf, high=inf, shape=(), dtype=float64)',1);
INSERT INTO "channels" VALUES(17,2,NULL,3,0,'sensor',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(18,2,NULL,3,0,'sensor',1,'myenv.1','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(19,2,NULL,3,0,'actuator',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(20,2,NULL,3,0,'reward',0,'count',NULL,1);
INSERT INTO "channels" VALUES(21,2,NULL,4,0,'sensor',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(22,2,NULL,4,0,'sensor',1,'myenv.1','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(23,2,NULL,4,0,'actuator',0,'myenv.0','Box(low=0.0, high=1.0, shape=(1,), dtype=float64)',1);
INSERT INTO "channels" VALUES(24,2,NULL,4,0,'reward',0,'count',NULL,1);
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
	CONSTRAINT pk_environments PRIMARY KEY (id), 
	CONSTRAINT uq_environments_phase_id_uid UNIQUE (phase_id, uid), 
	CONSTRAINT fk_environments_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id)
);
INSERT INTO "environments" VALUES(1,1,'myenv','Dummy','{"max_iter":3,"limit":Infinity}',NULL,NULL,1,1);
INSERT INTO "environments" VALUES(2,2,'myenv','Dummy','{"max_iter":3,"limit":Infinity}',NULL,NULL,1,1);
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
INSERT INTO "episodes" VALUES(1,0,0,0,3,2,'EnvironmentTerminationCondition','RESET',0.25,'2026-11-24 00:08:42.730942');
INSERT INTO "episodes" VALUES(1,0,1,0,3,2,'EnvironmentTerminationCondition','RESET',0.25,'2026-11-24 00:08:42.732772');
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
INSERT INTO "errors" VALUES(1,2,2,'ValueError','no good','ValueError: no good
','2026-11-24 00:08:42.787034');
CREATE TABLE experiments (
	id INTEGER NOT NULL, 
	uid TEXT NOT NULL, 
	CONSTRAINT pk_experiments PRIMARY KEY (id), 
	CONSTRAINT uq_experiments_uid UNIQUE (uid)
);
INSERT INTO "experiments" VALUES(1,'an experiment');
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
	CONSTRAINT uq_instances_uid UNIQUE (uid), 
	CONSTRAINT fk_instances_run_document_id FOREIGN KEY(run_document_id) REFERENCES run_documents (id), 
	CONSTRAINT fk_instances_experiment_id FOREIGN KEY(experiment_id) REFERENCES experiments (id)
);
INSERT INTO "instances" VALUES(1,'20261124T000842698637-08021d82',1,1,'7','3.5','finished','2026-11-24 00:08:42.698768','2026-11-24 00:08:42.777277','host',12271,1549.02,'{"palaestrai_mosaik":"0.1.0","mosaik":"3.6.0","numpy":"2.4.6","python":"3.11.7","pandapower":"3.5.6","simbench":"1.6.3","lightsim2grid":"1.2.0","scipy":"1.17.1","gymnasium":"1.4.0","stable-baselines3":"2.9.2","torch":"2.13.0+cpu"}');
INSERT INTO "instances" VALUES(2,'20261124T000842778503-1f87a56f',2,NULL,'7','3.5','failed','2026-11-24 00:08:42.778563','2026-11-24 00:08:42.787034','host',12271,1549.02,'{"palaestrai_mosaik":"0.1.0","mosaik":"3.6.0","numpy":"2.4.6","python":"3.11.7","pandapower":"3.5.6","simbench":"1.6.3","lightsim2grid":"1.2.0","scipy":"1.17.1","gymnasium":"1.4.0","stable-baselines3":"2.9.2","torch":"2.13.0+cpu"}');
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
	CONSTRAINT fk_outcomes_phase_id_worker_episode_evaluation FOREIGN KEY(phase_id, worker, episode, evaluation) REFERENCES episodes (phase_id, worker, episode, evaluation), 
	CONSTRAINT fk_outcomes_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id)
);
INSERT INTO "outcomes" VALUES(1,0,0,0,1,'objective','',4.0,1.33333333333333325931e+00,0.0,3.0);
INSERT INTO "outcomes" VALUES(1,0,0,0,1,'reward','count',3.0,1.0,0.0,2.0);
INSERT INTO "outcomes" VALUES(1,0,0,0,2,'objective','',4.0,1.33333333333333325931e+00,0.0,3.0);
INSERT INTO "outcomes" VALUES(1,0,0,0,2,'reward','count',3.0,1.0,0.0,2.0);
INSERT INTO "outcomes" VALUES(1,0,1,0,1,'objective','',4.0,1.33333333333333325931e+00,0.0,3.0);
INSERT INTO "outcomes" VALUES(1,0,1,0,1,'reward','count',3.0,1.0,0.0,2.0);
INSERT INTO "outcomes" VALUES(1,0,1,0,2,'objective','',4.0,1.33333333333333325931e+00,0.0,3.0);
INSERT INTO "outcomes" VALUES(1,0,1,0,2,'reward','count',3.0,1.0,0.0,2.0);
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
	CONSTRAINT pk_phases PRIMARY KEY (id), 
	CONSTRAINT uq_phases_instance_id_number UNIQUE (instance_id, number), 
	CONSTRAINT fk_phases_instance_id FOREIGN KEY(instance_id) REFERENCES instances (id)
);
INSERT INTO "phases" VALUES(1,1,0,'phase_0','train',1,2,'Vanilla','2026-11-24 00:08:42.722970','2026-11-24 00:08:42.771082','two episodes');
INSERT INTO "phases" VALUES(2,2,0,'phase_0','train',1,2,'Vanilla','2026-11-24 00:08:42.781015','2026-11-24 00:08:42.783928','failed');
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
INSERT INTO "run_documents" VALUES(1,'hash of my-run','my-run','{"uid":"my-run","seed":7}','uid: my-run
','content of my-run');
INSERT INTO "run_documents" VALUES(2,'hash of bad-run','bad-run','{"uid":"bad-run","seed":7}','uid: bad-run
',NULL);
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
	CONSTRAINT uq_streams_phase_id_kind_name_body_group_evaluation UNIQUE (phase_id, kind, name, body_group, evaluation), 
	CONSTRAINT fk_streams_phase_id FOREIGN KEY(phase_id) REFERENCES phases (id)
);
INSERT INTO "streams" VALUES(1,1,'agent','a',0,0,'trajectories/phase-0/agent-a',6,1,'867f02b93fa0fde6fe907b4dc899c2aad020389e3b9e1b8048d18560c5e8f18b');
INSERT INTO "streams" VALUES(2,1,'wall','a',0,0,'trajectories/phase-0/wall-a',NULL,NULL,NULL);
INSERT INTO "streams" VALUES(3,1,'agent','b',0,0,'trajectories/phase-0/agent-b',6,1,'2448887d3b6a7bdb1957422f40b11d9e8cddfdfdab161eafc18735b58522b19a');
INSERT INTO "streams" VALUES(4,1,'wall','b',0,0,'trajectories/phase-0/wall-b',NULL,NULL,NULL);
INSERT INTO "streams" VALUES(5,1,'environment','myenv',0,0,'trajectories/phase-0/environment-myenv',6,1,'c7628c77a96f4741d3999d12114427511ea2140bc635115354f3f7733f367fe7');
INSERT INTO "streams" VALUES(6,1,'statistics','',0,0,'trajectories/phase-0/statistics',2,1,'f58f7ef17d3e722c6f2603ec7d8834a80f5e00e6508e82f3b378b6cb7b0f7f28');
INSERT INTO "streams" VALUES(7,2,'agent','a',0,0,'trajectories/phase-0/agent-a',0,0,'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
INSERT INTO "streams" VALUES(8,2,'wall','a',0,0,'trajectories/phase-0/wall-a',NULL,NULL,NULL);
INSERT INTO "streams" VALUES(9,2,'agent','b',0,0,'trajectories/phase-0/agent-b',0,0,'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
INSERT INTO "streams" VALUES(10,2,'wall','b',0,0,'trajectories/phase-0/wall-b',NULL,NULL,NULL);
INSERT INTO "streams" VALUES(11,2,'environment','myenv',0,0,'trajectories/phase-0/environment-myenv',0,0,'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
INSERT INTO "streams" VALUES(12,2,'statistics','',0,0,'trajectories/phase-0/statistics',0,0,'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
CREATE TABLE warnings (
	id INTEGER NOT NULL, 
	instance_id INTEGER NOT NULL, 
	text TEXT NOT NULL, 
	time DATETIME NOT NULL, 
	CONSTRAINT pk_warnings PRIMARY KEY (id), 
	CONSTRAINT fk_warnings_instance_id FOREIGN KEY(instance_id) REFERENCES instances (id)
);
INSERT INTO "warnings" VALUES(1,1,'a warning','2026-11-24 00:08:42.775143');
CREATE INDEX ix_run_documents_uid ON run_documents (uid);
CREATE INDEX ix_run_documents_content ON run_documents (content);
CREATE INDEX ix_instances_experiment_id ON instances (experiment_id);
CREATE INDEX ix_instances_run_document_id ON instances (run_document_id);
CREATE INDEX ix_warnings_instance_id ON warnings (instance_id);
CREATE INDEX ix_errors_instance_id ON errors (instance_id);
CREATE INDEX ix_bodies_phase_id ON bodies (phase_id);
CREATE INDEX ix_channels_phase_id ON channels (phase_id);
COMMIT;
