"""Bodies of agents, incarnations of environments."""

from contextlib import AbstractContextManager

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# An agent had one body, in the environment that offers its channels, if there is just one.
_ONE_BODY = """
INSERT INTO bodies
    (phase_id, agent_id, body_group, name, first, count, number, environment, muscle, objective, proposed)
SELECT agents.phase_id, agents.id, 0, NULL, 0, 1, 0, around.environment, agents.muscle, agents.objective, :no
FROM agents LEFT JOIN (
    SELECT own.agent_id AS agent_id, MIN(environments.uid) AS environment
    FROM channels AS own
    JOIN channels AS offered ON offered.phase_id = own.phase_id AND offered.kind = own.kind
        AND offered.uid = own.uid AND offered.environment_id IS NOT NULL
    JOIN environments ON environments.id = offered.environment_id
    WHERE own.kind IN ('sensor', 'actuator')
    GROUP BY own.agent_id
    HAVING COUNT(DISTINCT environments.id) = 1
) AS around ON around.agent_id = agents.id
ORDER BY agents.id
"""


def _altered(table: str) -> AbstractContextManager[BatchOperations]:
    # SQLite cannot alter keys: the table is copied, and others refer to the copy by its name.
    return op.batch_alter_table(table, recreate="always" if _copies() else "never")


def _copies() -> bool:
    return op.get_context().dialect.name == "sqlite"


def _add_number(batch: BatchOperations, name: str, default: str, after: str) -> None:
    column: sa.Column[int] = sa.Column(name, sa.Integer(), nullable=False, server_default=default)
    # A table that is altered in place takes new columns at its end only.
    batch.add_column(column, insert_after=after if _copies() else None)


def upgrade() -> None:
    with _altered("environments") as batch:
        _add_number(batch, "incarnations", "1", "step_size")
    with _altered("channels") as batch:
        _add_number(batch, "body_group", "0", "agent_id")
    with _altered("streams") as batch:
        _add_number(batch, "body_group", "0", "name")
        batch.drop_constraint(op.f("uq_streams_phase_id_kind_name_evaluation"), type_="unique")
        batch.create_unique_constraint(
            op.f("uq_streams_phase_id_kind_name_body_group_evaluation"),
            ["phase_id", "kind", "name", "body_group", "evaluation"],
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
    op.get_bind().execute(sa.text(_ONE_BODY).bindparams(no=False))


def downgrade() -> None:
    op.drop_index(op.f("ix_bodies_phase_id"), table_name="bodies")
    op.drop_table("bodies")
    # The older schema holds only the first group.
    for table in ("channels", "streams"):
        op.execute(f"DELETE FROM {table} WHERE body_group > 0")
    with _altered("streams") as batch:
        batch.drop_constraint(op.f("uq_streams_phase_id_kind_name_body_group_evaluation"), type_="unique")
        batch.drop_column("body_group")
        batch.create_unique_constraint(
            op.f("uq_streams_phase_id_kind_name_evaluation"), ["phase_id", "kind", "name", "evaluation"]
        )
    with _altered("channels") as batch:
        batch.drop_column("body_group")
    with _altered("environments") as batch:
        batch.drop_column("incarnations")
