"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_documents")),
        sa.UniqueConstraint("hash", name=op.f("uq_run_documents_hash")),
    )
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
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name=op.f("fk_phases_instance_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_phases")),
        sa.UniqueConstraint("instance_id", "number", name=op.f("uq_phases_instance_id_number")),
    )
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
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=op.f("fk_environments_phase_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environments")),
        sa.UniqueConstraint("phase_id", "uid", name=op.f("uq_environments_phase_id_uid")),
    )
    op.create_table(
        "episodes",
        sa.Column("phase_id", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("episode", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("ticks", sa.BigInteger(), nullable=False),
        sa.Column("ended_by", sa.Text(), nullable=False),
        sa.Column("flow", sa.Text(), nullable=False),
        sa.Column("duration", sa.Float(precision=53), nullable=False),
        sa.Column("ended", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=op.f("fk_episodes_phase_id")),
        sa.PrimaryKeyConstraint("phase_id", "worker", "episode", name=op.f("pk_episodes")),
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
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("parts", sa.Integer(), nullable=True),
        sa.Column("digest", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["phase_id"], ["phases.id"], name=op.f("fk_streams_phase_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_streams")),
        sa.UniqueConstraint("phase_id", "kind", "name", name=op.f("uq_streams_phase_id_kind_name")),
    )
    op.create_table(
        "channels",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("phase_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=True),
        sa.Column("agent_id", sa.Integer(), nullable=True),
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
        sa.Column("agent_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sum", sa.Float(precision=53), nullable=True),
        sa.Column("mean", sa.Float(precision=53), nullable=True),
        sa.Column("min", sa.Float(precision=53), nullable=True),
        sa.Column("max", sa.Float(precision=53), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_outcomes_agent_id")),
        sa.ForeignKeyConstraint(
            ["phase_id", "worker", "episode"],
            ["episodes.phase_id", "episodes.worker", "episodes.episode"],
            name=op.f("fk_outcomes_phase_id_worker_episode"),
        ),
        sa.PrimaryKeyConstraint(
            "phase_id", "worker", "episode", "agent_id", "kind", "name", name=op.f("pk_outcomes")
        ),
    )


def downgrade() -> None:
    op.drop_table("outcomes")
    op.drop_index(op.f("ix_channels_phase_id"), table_name="channels")
    op.drop_table("channels")
    op.drop_table("streams")
    op.drop_index(op.f("ix_errors_instance_id"), table_name="errors")
    op.drop_table("errors")
    op.drop_table("episodes")
    op.drop_table("environments")
    op.drop_table("agents")
    op.drop_index(op.f("ix_warnings_instance_id"), table_name="warnings")
    op.drop_table("warnings")
    op.drop_table("phases")
    op.drop_index(op.f("ix_instances_run_document_id"), table_name="instances")
    op.drop_index(op.f("ix_instances_experiment_id"), table_name="instances")
    op.drop_table("instances")
    op.drop_index(op.f("ix_run_documents_uid"), table_name="run_documents")
    op.drop_table("run_documents")
    op.drop_table("experiments")
