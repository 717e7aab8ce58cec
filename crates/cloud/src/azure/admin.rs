//! The administrator that Azure demands of each machine: a random name and password, which are not
//! kept anywhere.

use access::Secret;
use aws_lc_rs::rand::SecureRandom;

const NAME_CHARS: usize = 20;
const PASSWORD_CHARS: usize = 72;
/// Azure wants characters of three of these classes.
const CLASSES: [&[u8]; 4] = [
    b"abcdefghijklmnopqrstuvwxyz",
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    b"0123456789",
    b"!@#$%*()_+-=[]{}|",
];

pub(super) struct Admin {
    pub(super) name: String,
    pub(super) password: Secret,
}

impl Admin {
    pub(super) fn new(random: &dyn SecureRandom) -> Result<Self, String> {
        let name = draw(random, CLASSES[0], NAME_CHARS)?;
        let all = CLASSES.concat();
        let mut password = draw(random, &all, PASSWORD_CHARS - CLASSES.len())?;
        for class in CLASSES {
            password.push_str(&draw(random, class, 1)?);
        }
        Ok(Self {
            name,
            password: Secret::new(password),
        })
    }
}

/// The remainder favours some characters by a little, which so long a text makes up for.
fn draw(random: &dyn SecureRandom, alphabet: &[u8], n_chars: usize) -> Result<String, String> {
    let mut bytes = vec![0; n_chars];
    let filled = random.fill(&mut bytes);
    filled.map_err(|_| "the system has no random numbers".to_owned())?;
    let char_of = |byte: &u8| char::from(alphabet[usize::from(*byte) % alphabet.len()]);
    Ok(bytes.iter().map(char_of).collect())
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;

    use super::*;

    #[test]
    fn a_password_has_all_classes_of_characters_and_differs_each_time() {
        let random = SystemRandom::new();
        let admin = Admin::new(&random).unwrap();
        assert_eq!(admin.name.len(), NAME_CHARS);
        let password = admin.password.expose();
        assert_eq!(password.len(), PASSWORD_CHARS);
        for class in CLASSES {
            assert!(password.bytes().any(|byte| class.contains(&byte)));
        }
        let other = Admin::new(&random).unwrap();
        assert_ne!(other.name, admin.name);
        assert_ne!(other.password.expose(), password);
    }
}
