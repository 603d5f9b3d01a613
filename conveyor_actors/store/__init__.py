"""The state on disk: what the tables hold (`tables`), and LMDB below them (`lmdb_store`)."""
