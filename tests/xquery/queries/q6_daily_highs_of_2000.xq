(: Query 7.6, join: TMAX of each station for each day of 2000 :)
for $s in collection("/stations")/stationCollection/station
for $r in collection("/sensors")/dataCollection/data
where $s/id eq $r/station
  and $r/dataType eq "TMAX"
  and year-from-dateTime(xs:dateTime(data($r/date))) eq 2000
return ($s/displayName, $r/date, $r/value)
