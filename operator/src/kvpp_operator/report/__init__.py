"""(findings, what was applied, what lives, previous status, now) → status. Pure; `now` is an argument."""
