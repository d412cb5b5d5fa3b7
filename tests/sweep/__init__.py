"""The standing sweep: other people's robots and random ones, compared with Pinocchio and MuJoCo, in programs as users compile them."""
