"""`qwink bench extract`: what drafts and forced tokens save where answers are known."""
