(: Q5, join: all readings of 4 July 1976 of stations in the state of Washington :)
for $s in collection("/stations")/stationCollection/station
for $r in collection("/sensors")/dataCollection/data
where $s/id eq $r/station
  and (some $l in $s/locationLabels satisfies ($l/type eq "ST" and upper-case(data($l/displayName)) eq "WASHINGTON"))
  and xs:dateTime(data($r/date)) eq xs:dateTime("1976-07-04T00:00:00.000")
return $r
