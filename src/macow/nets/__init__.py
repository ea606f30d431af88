"""The plain networks inside couplings and dequantizers: no log-dets, no inverses."""
