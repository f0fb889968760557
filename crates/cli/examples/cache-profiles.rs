//! Prints docs/profiles.md.

fn main() {
    print!("{}", flashsift_core::sift::profile::markdown());
}
