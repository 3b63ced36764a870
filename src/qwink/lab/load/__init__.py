"""`qwink bench load`: a server's latency and throughput by number of concurrent users."""
