"""What `ottla import` does: reads the directory of an Apache Kafka broker, and makes it one of ours."""
