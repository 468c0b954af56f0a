"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "descriptions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_descriptions")),
        sa.UniqueConstraint("hash", name=op.f("uq_descriptions_hash")),
    )
    op.create_table(
        "experiments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiments")),
        sa.UniqueConstraint("uid", name=op.f("uq_experiments_uid")),
    )
    op.create_table(
        "run_documents",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_documents")),
        sa.UniqueConstraint("hash", name=op.f("uq_run_documents_hash")),
    )
    op.create_index(op.f("ix_run_documents_content"), "run_documents", ["content"], unique=False)
    op.create_index(op.f("ix_run_documents_uid"), "run_documents", ["uid"], unique=False)
    op.create_table(
        "instances",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("run_document_id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=True),
        sa.Column("seed", sa.String(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started", sa.DateTime(), nullable=False),
        sa.Column("ended", sa.DateTime(), nullable=True),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("pid_started", sa.Float(precision=53), nullable=False),
        sa.Column("packages", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_instances_experiment_id")
        ),
        sa.ForeignKeyConstraint(
            ["run_document_id"], ["run_documents.id"], name=op.f("fk_instances_run_document_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instances")),
        sa.UniqueConstraint("uid", name=op.f("uq_instances_uid")),
    )
    op.create_index(op.f("ix_instances_experiment_id"), "instances", ["experiment_id"], unique=False)
    op.create_index(op.f("ix_instances_run_document_id"), "instances", ["run_document_id"], unique=False)
    op.create_table(
        "brains",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_id", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Integer(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("time", sa.DateTime(), nullable=False),
        sa.Column("dump", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name=op.f("fk_brains_instance_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_brains")),
        sa.UniqueConstraint(
            *("instance_id", "phase", "agent", "snapshot", "tag"),
            name=op.f("uq_brains_instance_id_phase_agent_snapshot_tag"),
        ),
    )
    op.create_table(
        "phases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("workers", sa.Integer(), nullable=False),
        sa.Column("episodes", sa.Integer(), nullable=True),
        sa.Column("controller", sa.Text(), nullable=False),
        sa.Column("started", sa.DateTime(), nullable=False),
        sa.Column("ended", sa.DateTime(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("world_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name=op.f("fk_phases_instance_id")),
        sa.ForeignKeyConstraint(["world_id"], ["descriptions.id"], name=op.f("fk_phases_world_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_phases")),
        sa.UniqueConstraint("instance_id", "number", name=op.f("uq_phases_instance_id_number")),
    )
    op.create_index(op.f("ix_phases_world_id"), "phases", ["world_id"], unique=False)
    op.create_table(
        "warnings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_id", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("time", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name=op.f("fk_warnings_instance_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_warnings")),
    )
    op.create_index(op.f("ix_warnings_instance_id"), "warnings", ["instance_id"], unique=False)
    op.create_table(
        "agents",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("phase_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("brain", sa.Text(), nullable=True),
        sa.Column("muscle", sa.Text(), nullable=True),
        sa.Column("objective", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=op.f("fk_agents_phase_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
        sa.UniqueConstraint("phase_id", "name", name=op.f("uq_agents_phase_id_name")),
    )
    op.create_table(
        "environments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("phase_id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("params", sa.Text(), nullable=True),
        sa.Column("world_model", sa.Text(), nullable=True),
        sa.Column("start", sa.Text(), nullable=True),
        sa.Column("step_size", sa.BigInteger(), nullable=False),
        sa.Column("incarnations", sa.Integer(), server_default="1", nullable=False),
        sa.Column("topology_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=op.f("fk_environments_phase_id")),
        sa.ForeignKeyConstraint(
            ["topology_id"], ["descriptions.id"], name=op.f("fk_environments_topology_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environments")),
        sa.UniqueConstraint("phase_id", "uid", name=op.f("uq_environments_phase_id_uid")),
    )
    op.create_index(op.f("ix_environments_topology_id"), "environments", ["topology_id"], unique=False)
    op.create_table(
        "episodes",
        sa.Column("phase_id", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("episode", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("evaluation", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("ticks", sa.BigInteger(), nullable=False),
        sa.Column("ended_by", sa.Text(), nullable=False),
        sa.Column("flow", sa.Text(), nullable=False),
        sa.Column("duration", sa.Float(precision=53), nullable=False),
        sa.Column("ended", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=op.f("fk_episodes_phase_id")),
        sa.PrimaryKeyConstraint("phase_id", "worker", "episode", "evaluation", name=op.f("pk_episodes")),
    )
    op.create_table(
        "errors",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("instance_id", sa.Integer(), nullable=False),
        sa.Column("phase_id", sa.Integer(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("traceback", sa.Text(), nullable=False),
        sa.Column("time", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name=op.f("fk_errors_instance_id")),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=op.f("fk_errors_phase_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_errors")),
    )
    op.create_index(op.f("ix_errors_instance_id"), "errors", ["instance_id"], unique=False)
    op.create_table(
        "streams",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("phase_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("body_group", sa.Integer(), server_default="0", nullable=False),
        sa.Column("evaluation", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("parts", sa.Integer(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=op.f("fk_streams_phase_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_streams")),
        sa.UniqueConstraint(
            *("phase_id", "kind", "name", "body_group", "evaluation"),
            name=op.f("uq_streams_phase_id_kind_name_body_group_evaluation"),
        ),
    )
    op.create_table(
        "bodies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("phase_id", sa.Integer(), nullable=False),
        sa.Column("agent_id", sa.Integer(), nullable=False),
        sa.Column("body_group", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("first", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("incarnations", sa.Text(), nullable=True),
        sa.Column("environment", sa.Text(), nullable=True),
        sa.Column("muscle", sa.Text(), nullable=True),
        sa.Column("objective", sa.Text(), nullable=True),
        sa.Column("proposed", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_bodies_agent_id")),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=op.f("fk_bodies_phase_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bodies")),
        sa.UniqueConstraint("agent_id", "body_group", name=op.f("uq_bodies_agent_id_body_group")),
    )
    op.create_index(op.f("ix_bodies_phase_id"), "bodies", ["phase_id"], unique=False)
    op.create_table(
        "channels",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("phase_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=True),
        sa.Column("agent_id", sa.Integer(), nullable=True),
        sa.Column("body_group", sa.Integer(), server_default="0", nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("space", sa.Text(), nullable=True),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_channels_agent_id")),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environments.id"], name=op.f("fk_channels_environment_id")
        ),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=op.f("fk_channels_phase_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_channels")),
    )
    op.create_index(op.f("ix_channels_phase_id"), "channels", ["phase_id"], unique=False)
    op.create_table(
        "outcomes",
        sa.Column("phase_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("worker", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("episode", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("evaluation", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("agent_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sum", sa.Float(precision=53), nullable=True),
        sa.Column("mean", sa.Float(precision=53), nullable=True),
        sa.Column("min", sa.Float(precision=53), nullable=True),
        sa.Column("max", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_outcomes_agent_id")),
        sa.ForeignKeyConstraint(
            ["phase_id", "worker", "episode", "evaluation"],
            ["episodes.phase_id", "episodes.worker", "episodes.episode", "episodes.evaluation"],
            name=op.f("fk_outcomes_phase_id_worker_episode_evaluation"),
        ),
        sa.PrimaryKeyConstraint(
            *("phase_id", "worker", "episode", "evaluation", "agent_id", "kind", "name"),
            name=op.f("pk_outcomes"),
        ),
    )
