"""`qwink bench stages`: the time of each stage by picture size and number of threads."""
