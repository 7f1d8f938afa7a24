(: Q3, aggregation: rain of 1999 at Syracuse airport, in millimetres :)
sum(
  for $r in collection("/sensors")/dataCollection/data
  where $r/station eq "GHCND:USW00014771"
    and $r/dataType eq "PRCP"
    and year-from-dateTime(xs:dateTime(data($r/date))) eq 1999
  return $r/value
) div 10
