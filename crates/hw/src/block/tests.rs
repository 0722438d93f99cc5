mod completing;
mod disk;
mod users;
