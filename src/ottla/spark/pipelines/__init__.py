"""Pipelines as projects: laid out, checked, run, stopped. Declared ones are Spark's own (`pyspark.pipelines`)."""
