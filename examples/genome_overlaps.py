"""Reads on genes: which reads overlap a gene, how much of it they cover, and the gene next to each variant.

Draws how deep the reads lie on one chromosome, into genome_overlaps.svg (needs matplotlib).
"""

from matplotlib.figure import Figure

import dovetail

spark = dovetail.session(app="genome")
genes = spark.sql(
    "select id, concat('chr', id % 3) as chrom, 4000 * id as start, 4000 * id + 700 + 31 * (id % 50) as end "
    "from range(300)"
)
reads = spark.sql(
    "select id as read, concat('chr', id % 3) as chrom, start, start + 150 as end "
    "from (select id, pmod(xxhash64(id), 1200000) as start from range(60000))"
)
variants = spark.sql("select id as variant, 'chr1' as chrom, 12345 * id as start, 12345 * id + 1 as end from range(90)")

# At least half of a read must lie on the gene.
on_genes = dovetail.interval_join(reads, genes, on="chrom", min_fraction=0.5, with_overlap=True)
print(on_genes.groupBy("id").count().orderBy("id").limit(3).collect())

covered = dovetail.interval_coverage(genes, reads, on="chrom")
covered.select("id", "covered", "n_overlaps", "covered_fraction").orderBy("id").show(3)
assert covered.where("covered_fraction not between 0 and 1").count() == 0

nearest = dovetail.interval_nearest(variants, genes, on="chrom", k=1, columns=["variant", "id", "distance"])
assert nearest.count() == 90
nearest.orderBy("variant").show(3)

depth = dovetail.interval_depth(reads.where("chrom = 'chr0' and start < 60000"), on="chrom").orderBy("start").collect()
figure = Figure(figsize=(8, 2.5), layout="tight")
axes = figure.subplots()
axes.bar([r.start for r in depth], [r.depth for r in depth], [r.end - r.start for r in depth], align="edge")
axes.set_xlabel("position on chr0")
axes.set_ylabel("reads")
figure.savefig("genome_overlaps.svg")
