(: Query 7.8, join and aggregation: average daily temperature difference over all stations, in degrees Celsius :)
avg(
  for $r_min in collection("/sensors_min")/dataCollection/data
  for $r_max in collection("/sensors_max")/dataCollection/data
  where $r_min/station eq $r_max/station
    and $r_min/date eq $r_max/date
    and $r_min/dataType eq "TMIN"
    and $r_max/dataType eq "TMAX"
  return $r_max/value - $r_min/value
) div 10
