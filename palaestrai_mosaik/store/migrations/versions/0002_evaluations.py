"""Evaluation episodes beside the training episodes; brains in the database."""

from contextlib import AbstractContextManager

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_KEY = ["phase_id", "worker", "episode"]
_OUTCOME = ["agent_id", "kind", "name"]


def _altered(table: str) -> AbstractContextManager[BatchOperations]:
    # SQLite cannot alter keys: the table is copied, and others refer to the copy by its name.
    return op.batch_alter_table(table, recreate="always" if _copies() else "never")


def _copies() -> bool:
    return op.get_context().dialect.name == "sqlite"


def _add_evaluation(batch: BatchOperations, after: str) -> None:
    column: sa.Column[bool] = sa.Column("evaluation", sa.Boolean(), nullable=False, server_default=sa.false())
    # A table that is altered in place takes new columns at its end only.
    batch.add_column(column, insert_after=after if _copies() else None)


def upgrade() -> None:
    with _altered("streams") as batch:
        _add_evaluation(batch, "name")
        batch.drop_constraint(op.f("uq_streams_phase_id_kind_name"), type_="unique")
        batch.create_unique_constraint(
            op.f("uq_streams_phase_id_kind_name_evaluation"), ["phase_id", "kind", "name", "evaluation"]
        )
    with _altered("outcomes") as batch:
        batch.drop_constraint(op.f("fk_outcomes_phase_id_worker_episode"), type_="foreignkey")
    with _altered("episodes") as batch:
        _add_evaluation(batch, "episode")
        batch.drop_constraint(op.f("pk_episodes"), type_="primary")
        batch.create_primary_key(op.f("pk_episodes"), [*_KEY, "evaluation"])
    with _altered("outcomes") as batch:
        _add_evaluation(batch, "episode")
        batch.drop_constraint(op.f("pk_outcomes"), type_="primary")
        batch.create_primary_key(op.f("pk_outcomes"), [*_KEY, "evaluation", *_OUTCOME])
        batch.create_foreign_key(
            op.f("fk_outcomes_phase_id_worker_episode_evaluation"),
            "episodes",
            [*_KEY, "evaluation"],
            [*_KEY, "evaluation"],
        )
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


def downgrade() -> None:
    op.drop_table("brains")
    # The older schema cannot hold evaluations.
    for table in ("outcomes", "episodes", "streams"):
        op.execute(f"DELETE FROM {table} WHERE evaluation")
    with _altered("outcomes") as batch:
        batch.drop_constraint(op.f("fk_outcomes_phase_id_worker_episode_evaluation"), type_="foreignkey")
        batch.drop_constraint(op.f("pk_outcomes"), type_="primary")
        batch.drop_column("evaluation")
        batch.create_primary_key(op.f("pk_outcomes"), [*_KEY, *_OUTCOME])
    with _altered("episodes") as batch:
        batch.drop_constraint(op.f("pk_episodes"), type_="primary")
        batch.drop_column("evaluation")
        batch.create_primary_key(op.f("pk_episodes"), _KEY)
    with _altered("outcomes") as batch:
        batch.create_foreign_key(op.f("fk_outcomes_phase_id_worker_episode"), "episodes", _KEY, _KEY)
    with _altered("streams") as batch:
        batch.drop_constraint(op.f("uq_streams_phase_id_kind_name_evaluation"), type_="unique")
        batch.drop_column("evaluation")
        batch.create_unique_constraint(op.f("uq_streams_phase_id_kind_name"), ["phase_id", "kind", "name"])
