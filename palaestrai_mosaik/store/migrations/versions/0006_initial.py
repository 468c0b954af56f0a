"""The first schema, made from the models: no store has an earlier one.

``tests/store/schema_0006.sql`` keeps it as it was released. Later revisions list their changes.
"""

from alembic import op

from palaestrai_mosaik.store.models import Base

revision = "0006"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    Base.metadata.create_all(op.get_bind())
