(: Q1, selection: readings of Key West airport on 25 December of 2003 and later :)
for $r in collection("/sensors")/dataCollection/data
let $datetime := xs:dateTime(data($r/date))
where $r/station eq "GHCND:USW00012836"
  and year-from-dateTime($datetime) ge 2003
  and month-from-dateTime($datetime) eq 12
  and day-from-dateTime($datetime) eq 25
return $r
