"""`python -m spark_jobs`, and the file that spark-submit is given."""

import sys

from spark_jobs.cli import main

sys.exit(main(sys.argv[1:]))
