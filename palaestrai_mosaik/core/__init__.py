"""What every package uses: errors, seeding, files, importing, text, progress. Imports nothing else of ours."""
