(: Query 7.2, selection: extreme wind warning, wind above 110 mph in tenths of m/s :)
for $r in collection("/sensors")/dataCollection/data
where $r/dataType eq "AWND"
  and xs:decimal(data($r/value)) gt 491.744
return $r
