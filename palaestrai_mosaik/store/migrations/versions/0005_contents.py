"""The hash of a run document's computation without its uid, to find its runs after its design has grown."""

import json
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from alembic import op

from palaestrai_mosaik.errors import DocumentError
from palaestrai_mosaik.experiment import content_digest, digest, loads

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

#: documents in memory at once
_TOGETHER = 500
_NAME = "ix_run_documents_content"


def upgrade() -> None:
    op.add_column("run_documents", sa.Column("content", sa.Text(), nullable=True))
    op.create_index(op.f(_NAME), "run_documents", ["content"], unique=False)
    table = sa.table(
        "run_documents", *(sa.column(name) for name in ("id", "hash", "document", "text", "content"))
    )
    connection = op.get_bind()
    some = sa.select(table.c.id, table.c.hash, table.c.document, table.c.text).order_by(table.c.id)
    last = 0
    while rows := connection.execute(some.where(table.c.id > last).limit(_TOGETHER)).all():
        for row_id, hashed, document, text in rows:
            content = _content(hashed, document, text)
            if content is not None:
                connection.execute(table.update().where(table.c.id == row_id).values(content=content))
        last = rows[-1][0]


def downgrade() -> None:
    op.drop_index(op.f(_NAME), table_name="run_documents")
    with op.batch_alter_table("run_documents") as batch:
        batch.drop_column("content")


def _content(hashed: str, document: str, text: str) -> str | None:
    """Return the content of a document with this hash; ``None`` of one that is not ours (an import)."""
    # whatever was written there: a document that cannot be read again is found by its hash alone
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        canonical: Any = json.loads(document)
        if digest(canonical) == hashed:
            return content_digest(canonical)
        # JSON made text of keys that are numbers
        with suppress(DocumentError):
            read = loads(text)
            if read.hash == hashed:
                return content_digest(read.canonical)
    return None
