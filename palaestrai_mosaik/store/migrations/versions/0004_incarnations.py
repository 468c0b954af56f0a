"""The incarnations of bodies, if they are not consecutive."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    copies = op.get_context().dialect.name == "sqlite"
    # SQLite puts a new column at the end of a table, unless the table is copied.
    with op.batch_alter_table("bodies", recreate="always" if copies else "never") as batch:
        batch.add_column(
            sa.Column("incarnations", sa.Text(), nullable=True), insert_after="number" if copies else None
        )


def downgrade() -> None:
    with op.batch_alter_table("bodies") as batch:
        batch.drop_column("incarnations")
