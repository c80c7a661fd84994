"""Time series: their calendar, schema, table, splits and scaling."""
