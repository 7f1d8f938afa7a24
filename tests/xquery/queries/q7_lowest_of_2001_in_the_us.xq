(: Q7, join and aggregation: lowest TMIN of 2001 over all stations in the United States :)
min(
  for $s in collection("/stations")/stationCollection/station
  for $r in collection("/sensors")/dataCollection/data
  where $s/id eq $r/station
    and (some $l in $s/locationLabels satisfies ($l/type eq "CNTRY" and $l/id eq "FIPS:US"))
    and $r/dataType eq "TMIN"
    and year-from-dateTime(xs:dateTime(data($r/date))) eq 2001
  return $r/value
) div 10
