CREATE TABLE sale (day TEXT, region TEXT, item TEXT, pieces INTEGER, cents INTEGER);
INSERT INTO sale VALUES
  ('2026-01-05', 'north', 'lamp', 3, 1999), ('2026-01-05', 'south', 'lamp', 5, 1899),
  ('2026-01-06', 'north', 'desk', 1, 24900), ('2026-02-01', 'north', 'lamp', 2, 1999),
  ('2026-02-03', 'south', 'desk', 2, 23900), ('2026-02-03', 'west', 'lamp', 7, 1799);
