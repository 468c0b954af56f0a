"""Run by alembic: migrates the database of the connection in its configuration."""

from alembic import context

from palaestrai_mosaik.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    # SQLite cannot alter a column in place; alembic then copies the table.
    render_as_batch=True,
)
context.run_migrations()
