"""`make bench`: Apache Kafka, pybroker and kfake under the same load, one after the other, on the same disk.

Run as `python -m perf.bench` with tests/ on the path. servers.py starts them, frames.py encodes what raw_client.py sends,
workloads.py says what is measured, results.py and bars.py judge it, report.py and plot.py write it down.
"""
