"""From recorded runs to a report: a pure function. Nothing here trains, and nothing here knows MLflow."""
