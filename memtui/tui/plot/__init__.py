"""The chart as pure values: scales, columns aligned to time, and cells; nothing here knows of Textual."""
