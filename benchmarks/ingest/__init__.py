"""Events per second and processor time per event: our Kafka worker and other ways to read or count a topic.

    make bench-ingest          python -m benchmarks.ingest [--quick] [--rounds N] [--part contenders|growing]

One run with one broker and one topic takes turns. Four contenders read and do nothing with the records:
the consumers' own performance tests in C and in Java (``programs.py``), librdkafka and aiokafka in Python.
The others count per hour: the worker end to end with durable counts, Arrow's reader of JSON, ``json.loads``,
and a stock Faust agent. The results are the ratios of neighbouring runs; medians are kept in
results/ingest.json.
"""
