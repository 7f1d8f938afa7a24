(: Query 7.4, aggregation: highest recorded temperature, in degrees Celsius :)
max(
  for $r in collection("/sensors")/dataCollection/data
  where $r/dataType eq "TMAX"
  return $r/value
) div 10
