"""Labels of runs, units of sensors, and whether the rewards of an environment accumulate."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

#: classes whose rewards accumulated before environments declared it
_CLASSES = (
    "palaestrai_mosaik.environment.cartpole:BatchCartPole",
    "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment",
    "palaestrai_mosaik.environment.matrix_game:MatrixGame",
    "palaestrai_mosaik.environment.pendulum:BatchPendulum",
    "palaestrai_mosaik.environment.pettingzoo:PettingZooEnvironment",
    "palaestrai_mosaik.environment.tabular:SlipperyGrid",
    "palaestrai_mosaik.environment.tabular:TabularMDP",
)


def upgrade() -> None:
    op.create_table(
        "labels",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("changed", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("run", name=op.f("pk_labels")),
    )
    op.create_index(op.f("ix_labels_name"), "labels", ["name"], unique=False)
    op.add_column("channels", sa.Column("unit", sa.Text(), nullable=True))
    op.add_column(
        "environments",
        sa.Column("rewards_accumulate", sa.Boolean(), server_default=sa.false(), nullable=False),
    )
    environments = sa.table("environments", sa.column("name"), sa.column("rewards_accumulate"))
    op.execute(
        environments.update().where(environments.c.name.in_(_CLASSES)).values(rewards_accumulate=sa.true())
    )
