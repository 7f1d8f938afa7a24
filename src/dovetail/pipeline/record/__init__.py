"""Records a run: `follow` reads Spark's progress, `figures` reads the joins' metrics, `watch` keeps both."""
