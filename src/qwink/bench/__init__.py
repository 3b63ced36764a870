"""The harness behind `qwink bench`: what a request needs, what it takes, what it costs."""
