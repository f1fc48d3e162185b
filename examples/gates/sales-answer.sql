SELECT region, SUM(pieces * cents) AS taken FROM sale GROUP BY region ORDER BY taken DESC;
