"""Ottla on Spark: topics as DataFrames, in batches and streams, through PySpark and without a jar."""
