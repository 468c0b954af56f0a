"""Static descriptions that runs share: topologies of environments, worlds of phases."""

from contextlib import AbstractContextManager

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_REFERENCES = {"environments": "topology_id", "phases": "world_id"}


def _altered(table: str) -> AbstractContextManager[BatchOperations]:
    # SQLite cannot alter keys: the table is copied, and others refer to the copy by its name.
    copies = op.get_context().dialect.name == "sqlite"
    return op.batch_alter_table(table, recreate="always" if copies else "never")


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
    for table, column in _REFERENCES.items():
        with _altered(table) as batch:
            batch.add_column(sa.Column(column, sa.Integer(), nullable=True))
            batch.create_foreign_key(op.f(f"fk_{table}_{column}"), "descriptions", [column], ["id"])
        op.create_index(op.f(f"ix_{table}_{column}"), table, [column], unique=False)


def downgrade() -> None:
    for table, column in _REFERENCES.items():
        op.drop_index(op.f(f"ix_{table}_{column}"), table_name=table)
        with _altered(table) as batch:
            batch.drop_constraint(op.f(f"fk_{table}_{column}"), type_="foreignkey")
            batch.drop_column(column)
    op.drop_table("descriptions")
