"""PySpark jobs for a Kafka cluster, pybroker's or any other, through Spark's own Kafka source and sink.

`python -m spark_jobs <job> --bootstrap-servers ...` runs one; docs/spark.md has them all. They import nothing but pyspark and
the standard library, so a Spark cluster has all they need, and nothing of pybroker.
"""
