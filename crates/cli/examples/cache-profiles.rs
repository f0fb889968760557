//! Prints docs/profiles.md.

fn main() {
    print!("{}", flashsift_files::sift::profile::markdown());
}
