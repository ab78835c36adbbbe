"""Events per second and processor time per event: our Kafka worker and other ways to count a topic.

    make bench-ingest                      python -m benchmarks.ingest [--quick]

One run with one broker takes turns: (a) aiokafka's bare ``getmany``, (b) the worker end to end with durable
counts, (c) a stock Faust agent, (d) plain loops over kafka-python and confluent-kafka. The results are the
ratios of neighbouring runs; medians are kept in results/ingest.json.
"""
