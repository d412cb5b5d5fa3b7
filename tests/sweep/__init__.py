"""The standing sweep: other people's robots and random ones against Pinocchio and MuJoCo, in programs as users compile them."""
